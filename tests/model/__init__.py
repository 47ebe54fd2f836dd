"""Exhaustive model of the admission, dispatch, migration and release protocol."""
