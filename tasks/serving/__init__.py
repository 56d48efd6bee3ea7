"""Ask served models: any OpenAI-compatible server."""
