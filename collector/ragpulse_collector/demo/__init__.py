"""`ragpulse demo`: the main job on one screen, offline.

Application (decorated), six hours of traffic ──OTLP over a socket──▶ collector ─▶ store ─▶ decide ─▶ evaluate ─▶ table

`traffic` makes the requests and prints the table; `POST demo` lets a running collector make the requests.
"""
