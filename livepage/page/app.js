const out = document.getElementById('state');
new EventSource('events').addEventListener('state', (e) => {
  out.textContent = JSON.stringify(JSON.parse(e.data), null, 1);
});
