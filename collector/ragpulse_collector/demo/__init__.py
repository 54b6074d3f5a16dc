"""`ragpulse demo`: the main job on one screen, offline.

Application (decorated), six hours of traffic ──OTLP over a socket──▶ collector ─▶ store ─▶ decide ─▶ evaluate ─▶ table

`traffic` makes the requests, `offer` lets a running collector make them, `report` prints the table.
"""
