"""Planted changes: rendered things of known looks in real photographs (ours).

``find_spots`` chooses where things stand, ``draw_planting`` what stands there and what changes,
``plant`` makes the pixels, ``photo_state`` changes the photograph itself, and
``photograph_planted`` puts them together: two or more photographs that differ by known changes.
"""
