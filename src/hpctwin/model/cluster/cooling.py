"""The cooling plant of a cluster: water loop, pumps, towers."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from hpctwin.model.cluster.racks import Watts
from hpctwin.model.input.settings import Settings

__all__ = ["Cooling"]

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Celsius = Annotated[float, Field(ge=-20, le=70)]


class Cooling(Settings):
    """Water loop from a cluster to evaporative towers; equations in docs/reference/systems.md.

    Args:
        liquid_share: Share of the cluster's heat that the water removes; the rest goes to the air
            of the room.
        air_cop: Heat removed from the room's air per watt of cooling power; by default that power
            is not counted.
        supply_c: Temperature at which the towers keep the supply water if they can, in °C.
        range_k: Temperature rise of the water that the pumps maintain by following the load, in K.
        flow_kg_s: Largest flow of the pumps, in kg/s.
        least_flow: Smallest flow of the pumps, as a share of the largest.
        pump_w: Power draw of the plant's pumps at full flow, in W.
        fan_w: Power draw of the towers' fans at full speed, in W.
        design_heat_w: Heat that the towers reject at the design wet-bulb temperature with full flow
            and full fan speed, if the water leaves at ``supply_c``, in W.
        design_wet_bulb_c: Design wet-bulb temperature, below ``supply_c``, in °C.
        air_kg_s: Air flow of the fans at full speed, in kg/s; by default ``flow_kg_s``.
        water_kg: Water in the loop, in kg.
        cycles: Factor by which salts are concentrated before water is drained.
    """

    liquid_share: float = Field(default=1.0, gt=0, le=1)
    air_cop: Positive | None = None
    supply_c: Celsius
    range_k: Positive
    flow_kg_s: Positive
    least_flow: float = Field(default=0.5, gt=0, le=1)
    pump_w: Watts
    fan_w: Watts
    design_heat_w: Positive
    design_wet_bulb_c: Celsius
    air_kg_s: Positive | None = None
    water_kg: Positive
    cycles: float = Field(default=4.0, gt=1)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.design_wet_bulb_c >= self.supply_c:
            raise ValueError(
                f"design_wet_bulb_c is {self.design_wet_bulb_c:g}, it must be below supply_c, "
                f"{self.supply_c:g}: towers cannot cool water below the wet bulb"
            )
        return self
