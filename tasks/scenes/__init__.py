"""Rendered scenes: their content, layout, changes, rendering and scene graphs.

Read in this order: ``vocabulary`` (words), ``shapes`` (meshes), ``places`` (surroundings),
``state`` (content and camera of a photograph), ``plan`` (placing things, worlds), ``changes`` (the
types of change), ``render`` (Mitsuba, noise, tone, exposures), ``world`` (photographs and their
scene graphs).
"""
