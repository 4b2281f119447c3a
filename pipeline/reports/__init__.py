"""The reports of jobs, each one HTML file that needs no server and no network.

page.py       the frame: style for light, dark and small screens; tables; plots
audit.py      which replicas differ, and where
lag.py        every partition's ISR over time, and lag
failover.py   every outage, phase by phase
"""
