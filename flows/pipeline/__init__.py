"""The stages of a build, profiles and settings."""
