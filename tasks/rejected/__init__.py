"""Rejected sides of preferences: texts that are wrong of their pair, images with an element
removed.
"""
