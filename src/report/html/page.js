// Two comforts that the page does not need: one line at the same time in all pictures, and a
// button that copies the command.
(() => {
  const plots = [...document.querySelectorAll('svg.plot')];
  const lines = plots.map((svg) => {
    const line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
    line.setAttribute('class', 'cross');
    line.setAttribute('y1', 0);
    line.setAttribute('y2', svg.viewBox.baseVal.height);
    line.style.display = 'none';
    svg.append(line);
    return line;
  });
  const readout = document.getElementById('readout');
  const hide = () => {
    lines.forEach((line) => { line.style.display = 'none'; });
    if (readout) readout.textContent = '';
  };
  plots.forEach((svg) => {
    const { end, left, right } = svg.dataset;
    svg.addEventListener('mousemove', (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      if (x < +left || x > +right) return hide();
      lines.forEach((line) => {
        line.setAttribute('x1', x);
        line.setAttribute('x2', x);
        line.style.display = '';
      });
      if (readout) readout.textContent = ((x - left) / (right - left) * end / 1e9).toFixed(2) + ' s';
    });
    svg.addEventListener('mouseleave', hide);
  });
  document.querySelectorAll('code[data-copy]').forEach((code) => {
    if (!navigator.clipboard) return;
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = 'copy';
    button.addEventListener('click', () => {
      navigator.clipboard.writeText(code.textContent).then(() => { button.textContent = 'copied'; });
    });
    code.after(button);
  });
})();
