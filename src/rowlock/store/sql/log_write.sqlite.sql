-- Store a line of a job's log.
INSERT INTO rowlock_log (job_id, line, at, text)
VALUES (:job_id, :line, {now}, :text)
