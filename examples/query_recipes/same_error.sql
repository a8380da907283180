/* Which error came back, in how many tasks, and when first and last? */
select error, count(*) as steps, count(distinct task_id) as tasks,
       min(started_at) as first, max(started_at) as last
from steps
where status = 'failed'
group by error
order by steps desc
