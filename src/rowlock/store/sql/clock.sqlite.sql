-- What time it is here.
SELECT {now}
