"""Tests of the forms of export."""
