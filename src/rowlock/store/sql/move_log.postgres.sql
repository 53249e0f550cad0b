-- The logs of jobs, each line as JSON. Uses log_pkey.
SELECT to_json(moved)::text
FROM rowlock.{table} AS moved
WHERE moved.job_id = ANY (:ids::uuid[])
