"""Rendered scenes: what there is to show, how it is put together, changed, rendered and described.

Read in this order: ``vocabulary`` (words), ``shapes`` (forms), ``places`` (surroundings), ``state`` (what a photograph
shows, and from where), ``plan`` (placing things, worlds), ``changes`` (the twelve types), ``render`` (Mitsuba,
noise and tone), ``world`` (photographs and the truth about them).
"""
