"""Rendered scenes: their content, layout, changes, rendering and scene graphs.

Read in this order: ``vocabulary`` (words), ``meshes`` and ``shapes`` (objects), ``pictures`` and
``places`` (surroundings), ``state`` (content and camera of a photograph), ``plan`` (placing
objects, worlds), ``changes`` (the types of change), ``render`` (Mitsuba, noise, tone, exposures),
``world`` (photographs and their scene graphs).
"""
