using System.Text;

namespace Quantra.Client;

/// <summary>One line of CSV (RFC 4180, without line breaks inside cells).</summary>
internal static class CsvLine
{
    /// <summary>The line's cells, quotes removed.</summary>
    public static List<string> Split(string line)
    {
        if (!line.Contains('"', StringComparison.Ordinal))
            return [.. line.Split(',')];
        var cells = new List<string>();
        var cell = new StringBuilder();
        var quoted = false;
        for (var at = 0; at < line.Length; at++)
        {
            if (line[at] == '"' && quoted && at + 1 < line.Length && line[at + 1] == '"')
                cell.Append(line[at++]);
            else if (line[at] == '"')
                quoted = !quoted;
            else if (line[at] == ',' && !quoted)
                Finish(cells, cell);
            else
                cell.Append(line[at]);
        }

        Finish(cells, cell);
        return cells;
    }

    private static void Finish(List<string> cells, StringBuilder cell)
    {
        cells.Add(cell.ToString());
        cell.Clear();
    }
}
