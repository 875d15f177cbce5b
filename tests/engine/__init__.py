"""The gateway in front of two real vLLM servers, on the CPU."""
