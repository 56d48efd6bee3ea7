"""Taggers, detectors, segmenters and removers by name: ours, served ones, plugins'."""
