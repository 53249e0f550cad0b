-- Store lines of a job's log.
INSERT INTO rowlock.log (job_id, line, at, text)
SELECT fresh.job_id, fresh.line, {now}, fresh.text
FROM unnest(:job_id::uuid[], :line::integer[], :text::text[]) AS fresh (job_id, line, text)
