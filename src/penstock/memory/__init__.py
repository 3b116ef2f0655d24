"""What routing remembers, in the same SQLite file as the ledger, and as files for other programs.

`sqlite` is the door. `schema` has the tables, `writer` the one thread that writes, `rows` what is
written, `reading` what is asked, `forgetting` what is deleted, by age, by key or for its number,
`rewriting` what overwrites it.
`tables` reads and writes files of rows, `training` brings them in and `exporting` gives them out.
"""
