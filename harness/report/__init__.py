"""Results as people and other programs read them: `terminal` for the screen, `csv` for tables, `html` for a page,
`figures` for charts, `differences` for two runs side by side, `format` for how a number or an untrusted text is shown.

Outside layer; trusted side. Renderers are pure: records in, text or renderables out. `cli` prints them.
"""
