//! Draws charts as SVG without a library: bars side by side, and lines over time.

use std::fmt::Write;

const COLORS: [&str; 6] = [
    "#1f6fb2", "#d1762c", "#5a9e4b", "#8a63b8", "#b8506b", "#7a7a7a",
];
const WIDTH: f64 = 860.0;
const FONT: &str = "font-family='sans-serif' font-size='12'";

/// A chart of horizontal bars in groups.
pub struct Bars<'a> {
    /// Heading of the chart.
    pub title: &'a str,
    /// Labels of the bars in a group.
    pub series: &'a [&'a str],
    /// Name of each group and lengths of its bars.
    pub groups: &'a [(String, Vec<Option<f64>>)],
}

impl Bars<'_> {
    /// The chart as SVG.
    pub fn draw(&self) -> String {
        let (left, bar, gap, top) = (290.0, 14.0, 10.0, 56.0);
        let rows = |values: &[Option<f64>]| values.iter().flatten().count() as f64;
        let height: f64 = self.groups.iter().map(|(_, v)| rows(v) * bar + gap).sum();
        let values = self.groups.iter().flat_map(|(_, v)| v.iter().flatten());
        let largest = values.fold(1e-9, |max: f64, v| max.max(*v));
        let scale = (WIDTH - left - 70.0) / largest;
        let mut svg = open(self.title, top + height + 10.0);
        legend(&mut svg, self.series);
        let mut y = top;
        for (name, values) in self.groups {
            let middle = y + rows(values) * bar / 2.0 + 4.0;
            text(&mut svg, left - 10.0, middle, "end", name);
            for (at, value) in values.iter().enumerate() {
                let Some(value) = value else { continue };
                let color = COLORS[at % COLORS.len()];
                let length = (value * scale).max(1.0);
                let _ = writeln!(
                    svg,
                    "<rect x='{left}' y='{:.1}' width='{length:.1}' height='{}' fill='{color}'/>",
                    y,
                    bar - 2.0
                );
                let number = format!("{value:.2}");
                text(
                    &mut svg,
                    left + length + 5.0,
                    y + bar - 3.5,
                    "start",
                    &number,
                );
                y += bar;
            }
            y += gap;
        }
        svg + "</svg>\n"
    }
}

/// A chart of values over time.
pub struct Lines<'a> {
    /// Heading of the chart.
    pub title: &'a str,
    /// Name and values of each line of the chart; the values are a second apart.
    pub series: &'a [(&'a str, &'a [f64])],
    /// A value that the chart shows as a horizontal line, with the line's name.
    pub limit: Option<(&'a str, f64)>,
}

impl Lines<'_> {
    /// The chart as SVG.
    pub fn draw(&self) -> String {
        let (left, top, high) = (80.0, 56.0, 260.0);
        let values = self.series.iter().flat_map(|(_, values)| values.iter());
        let limit = self.limit.map_or(0.0, |(_, level)| level);
        let largest = values.fold(limit.max(1e-9), |max, v| max.max(*v)) * 1.05;
        let longest = self.series.iter().map(|(_, v)| v.len()).max().unwrap_or(0);
        let width = WIDTH - left - 20.0;
        let x = |second: usize| left + width * second as f64 / longest.max(2) as f64;
        let y = |value: f64| top + high * (1.0 - value / largest);
        let mut svg = open(self.title, top + high + 40.0);
        let names: Vec<&str> = self.series.iter().map(|(name, _)| *name).collect();
        legend(&mut svg, &names);
        for step in 0..=4 {
            let value = largest * f64::from(step) / 4.0;
            rule(&mut svg, left, y(value), "#dddddd", "");
            let number = match largest {
                l if l >= 100.0 => format!("{value:.0}"),
                _ => format!("{value:.2}"),
            };
            text(&mut svg, left - 8.0, y(value) + 4.0, "end", &number);
        }
        if let Some((name, level)) = self.limit {
            rule(
                &mut svg,
                left,
                y(level),
                "#c00000",
                "stroke-dasharray='6 4'",
            );
            text(&mut svg, WIDTH - 24.0, y(level) - 5.0, "end", name);
        }
        for (at, (_, values)) in self.series.iter().enumerate() {
            let color = COLORS[at % COLORS.len()];
            let mut points = String::new();
            for (second, value) in values.iter().enumerate() {
                let _ = write!(points, "{:.1},{:.1} ", x(second), y(*value));
            }
            let _ = writeln!(
                svg,
                "<polyline points='{points}' fill='none' stroke='{color}' stroke-width='1.2'/>"
            );
        }
        let end = format!("{longest} s");
        text(&mut svg, left, top + high + 20.0, "middle", "0 s");
        text(&mut svg, WIDTH - 20.0, top + high + 20.0, "end", &end);
        svg + "</svg>\n"
    }
}

fn open(title: &str, height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height:.0}' {FONT}>\n\
         <rect width='100%' height='100%' fill='white'/>\n"
    );
    let _ = writeln!(
        svg,
        "<text x='10' y='20' font-size='14' font-weight='bold'>{}</text>",
        escaped(title)
    );
    svg
}

fn legend(svg: &mut String, names: &[&str]) {
    let mut x = 10.0;
    for (at, name) in names.iter().enumerate() {
        let color = COLORS[at % COLORS.len()];
        let _ = writeln!(
            svg,
            "<rect x='{x}' y='31' width='11' height='11' fill='{color}'/>"
        );
        text(svg, x + 16.0, 41.0, "start", name);
        x += 36.0 + 7.5 * name.chars().count() as f64;
    }
}

fn rule(svg: &mut String, left: f64, y: f64, color: &str, style: &str) {
    let _ = writeln!(
        svg,
        "<line x1='{left}' x2='{}' y1='{y:.1}' y2='{y:.1}' stroke='{color}' {style}/>",
        WIDTH - 20.0
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(
        svg,
        "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{}</text>",
        escaped(words)
    );
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}
