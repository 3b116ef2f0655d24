"""Quality over cost as an SVG file: a few lines and letters take no library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 440, 64, 48, 40, 150
LEAST_MARGIN = 0.0025
"""Of quality, so that a flat line has a range as well."""
COLOURS = {
    "no routing": "#7f7f7f",
    "SHA-256 kNN": "#d62728",
    "plain kNN": "#ff7f0e",
    "penstock": "#1f77b4",
}


def plotted(name: str, none: Points, alone: Points, curves: Mapping[str, Points]) -> str:
    """Each router's curve, the hull of the single models, and the models as dots."""
    lines = {"no routing": none, **curves}
    everything = [point for points in lines.values() for point in points]
    highest = max(cost for cost, _ in [*everything, *alone]) or 1.0
    low = min(quality for _, quality in everything)
    high = max(quality for _, quality in everything)
    margin = max((high - low) * 0.05, LEAST_MARGIN)
    low, high = low - margin, high + margin

    def x(cost: float) -> float:
        return LEFT + cost / highest * (WIDTH - LEFT - RIGHT)

    def y(quality: float) -> float:
        return HEIGHT - BOTTOM - (quality - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    def text(
        at: tuple[float, float], said: str, anchor: str = "middle", colour: str = "#444"
    ) -> str:
        place = f'x="{at[0]:.0f}" y="{at[1]:.0f}" text-anchor="{anchor}"'
        return f'<text {place} fill="{colour}">{escape(said)}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        text(((WIDTH - RIGHT + LEFT) / 2, 22), f"{name}: quality over cost"),
        text(((WIDTH - RIGHT + LEFT) / 2, HEIGHT - 10), "USD per thousand requests"),
    ]
    for step in range(6):
        cost, quality = highest * step / 5, low + (high - low) * step / 5
        parts.append(text((x(cost), HEIGHT - BOTTOM + 18), f"{cost * 1000:.2f}"))
        parts.append(text((LEFT - 6, y(quality) + 4), f"{quality:.3f}", "end"))
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(quality):.1f}" y2="{y(quality):.1f}" '
            'stroke="#ddd"/>'
        )
    for cost, quality in alone:
        if quality >= low:
            parts.append(f'<circle cx="{x(cost):.1f}" cy="{y(quality):.1f}" r="3" fill="#7f7f7f"/>')
    for number, (label, points) in enumerate(lines.items()):
        colour = COLOURS[label]
        path = " ".join(f"{x(cost):.1f},{y(quality):.1f}" for cost, quality in sorted(points))
        dashed = ' stroke-dasharray="5 4"' if label == "no routing" else ""
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>'
        )
        parts.append(text((WIDTH - RIGHT + 12, TOP + 20 + 20 * number), label, "start", colour))
    return "\n".join([*parts, "</svg>", ""])
