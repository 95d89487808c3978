"""The durable record of inputs, decisions and actions."""
