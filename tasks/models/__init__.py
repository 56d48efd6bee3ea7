"""Models behind Protocols: descriptors, encoders, search. Heavy libraries are loaded here, when
they are used.
"""
