"""The journal: the durable record of inputs, decisions and actions."""
