"""Rendered scenes: what there is to show, how it is put together, changed, rendered and described.

Read in this order: ``vocabulary`` (words), ``mesh`` and ``shapes`` (forms), ``textures`` and ``places`` (surroundings),
``state`` (what a photograph shows), ``camera``, ``arrange`` (placing), ``plan`` (worlds), ``changes`` and ``vary`` (the
twelve types), ``build``, ``photograph`` and ``develop`` (Mitsuba, noise and tone), ``graph`` (the truth), ``world``.
"""
