venv := .venv
