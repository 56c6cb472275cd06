"""Networks of graph attention; their modules need torch (extra ``neural``)."""
