"""Rendered scenes: what there is to show, how it is put together, changed, rendered and described.

Read in this order: ``vocabulary`` (words), ``mesh`` and ``shapes`` (forms), ``state`` (what a photograph shows), ``arrange``
(placing), ``changes`` (the twelve types), ``plan`` (worlds and their photographs), ``build`` and ``photograph`` (Mitsuba),
``develop`` (noise and tone), ``graph`` (the truth).
"""
