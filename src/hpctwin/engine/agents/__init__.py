"""Agents that decide: from one decision to the next in one compiled call, of the engine as it is.

A step does what the agent chose, lets `event_loop.advance` go on until the next decision is to be made, and
writes what the
agent sees then, and may choose, into memory of the caller's. What is decided, seen and earned are functions
``(agent, sim) -> None`` handed over by address, so that another one does not compile the others anew.
"""
