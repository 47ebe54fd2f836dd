"""The driver for Cedana: everything that knows Cedana stands in this folder.

`driver`, `settings` and `pods` are pure; `service` is the port, `http_service` its adapter, and
`reconciler` the use case that carries orders and answers between pods and Cedana.
"""
