"""The data plane's own HTTP/1.1 server: asyncio's transport, llhttp's parser, nothing between."""
