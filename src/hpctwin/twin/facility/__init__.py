"""The live facility: jobs of one queue are placed on several mirrored clusters."""
