"""ADPO's adversary (paper 000, section 4).

It learns which texts of other pairs the policy takes for true of a pair.
"""
