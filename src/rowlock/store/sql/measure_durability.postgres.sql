-- Whether a commit waits until the disk has it.
SELECT current_setting('synchronous_commit') <> 'off' AND current_setting('fsync')::boolean
