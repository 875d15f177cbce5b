"""The engine process: OpenVINO GenAI and the loop that drives it."""
