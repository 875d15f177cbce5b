"""The cheaper tier answers first; how sure it is of its first tokens says whether it goes on."""
