"""SURF's week with measured power, forecast an hour ahead."""
