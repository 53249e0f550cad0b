-- The server's version, and its clock.
SELECT current_setting('server_version'), {now}
