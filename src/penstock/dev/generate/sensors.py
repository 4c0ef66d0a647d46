"""Readings of sensors on several sites, keyed by the sensor. One site has a newer firmware, with a field more."""

from __future__ import annotations

from itertools import cycle

from penstock.dev.generate.event import Event, Kind, Render, Setting, headers_of
from penstock.dev.generate.timestamps import iso

_SITES = ("Aalborg", "Brno", "Cádiz", "Dijon", "Enschede")
_FIRMWARE = {"Enschede": '"firmware":"2.4.1",'}
SENSOR_BITS = 9


def _stream(setting: Setting) -> Render:
    rng, headers = setting.rng, headers_of("sensors")
    draw, chance = rng.getrandbits, rng.random
    sensors = [
        (f'{{"sensor_id":"sensor-{number:04d}","site":"{site}",{_FIRMWARE.get(site, "")}', b"sensor-%04d" % number)
        for number, site in zip(range(1 << SENSOR_BITS), cycle(_SITES), strict=False)
    ]
    temperature = [rng.uniform(12, 28) for _ in sensors]
    humidity = [rng.uniform(30, 70) for _ in sensors]
    battery = [rng.uniform(20, 100) for _ in sensors]
    reading = 0

    def render(at: int) -> Event:
        nonlocal reading
        reading += 1
        which = draw(SENSOR_BITS)
        head, key = sensors[which]
        # Drawn to a middle, so that a long run stays within what a thermometer shows.
        temperature[which] += (chance() - 0.5) + (20 - temperature[which]) * 0.02
        humidity[which] += (chance() - 0.5) * 2 + (50 - humidity[which]) * 0.02
        battery[which] = battery[which] - 0.01 if battery[which] > 1 else 100.0
        value = (
            f'{head}"reading_id":{reading},"temperature_c":{temperature[which]:.2f},'
            f'"humidity_pct":{humidity[which]:.1f},"battery_pct":{battery[which]:.1f},"reading_ts":"{iso(at)}"}}'
        )
        return Event(key, value.encode(), headers, at)

    return render


SENSORS = Kind(
    name="sensors",
    about="temperature, humidity and battery of sensors on several sites",
    id_field="sensor_id",
    wrong_types={"temperature_c": "hot", "humidity_pct": {}, "battery_pct": [], "reading_ts": "noon"},
    stream=_stream,
)
