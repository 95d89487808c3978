"""Agents that decide: one compiled call runs from one decision to the next.

The engine is unchanged. A step executes the agent's choice and runs `event_loop.advance` until the
next decision is due. It then writes the observation and the possible choices to the caller's
memory. Actions, observations and rewards are functions ``(agent, sim) -> None`` passed by address,
so that a new one does not recompile the others.
"""
