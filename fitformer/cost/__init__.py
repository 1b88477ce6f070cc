"""What a run costs: device-hours, energy, CO2 and cloud price, measured where the machine can and else estimated."""
