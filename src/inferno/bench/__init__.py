"""Measuring: workloads, the engines that compete at them, and what is made of the figures.

Knows engines from outside: tokens in, seconds out. `cli/bench.py` is its only user.
"""
