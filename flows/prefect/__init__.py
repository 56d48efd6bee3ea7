"""Builds, trainings and evaluations as Prefect flows and deployments."""
