"""Usage, latest requests and receipts over HTTP."""
