namespace Quantra.Client.Tests;

/// <summary>Exports of other programs: C# reads them like Python, or rejects them.</summary>
public sealed class ExportTests(PredictorFixture fixture)
{
    /// <summary>Files that only C# accepts: one has invalid UTF-8 in an ignored column, one a bar that no model accepts.</summary>
    private static readonly string[] Harmless = ["latin.csv", "half_empty.csv"];

    /// <summary>Number of exports with standard columns, of files with one alternative column name each, and of the two above.</summary>
    private const int Plain = 9 + 12 + 2;

    /// <summary>All exports and the files with alternative names.</summary>
    private const int WrittenAnew = 46 + 12;

    [Fact]
    public void A_file_is_read_like_in_Python_or_rejected_with_a_conversion_command()
    {
        var (read, writtenAnew) = (0, 0);
        foreach (var folder in Directory.EnumerateDirectories(fixture.PathOf("exports")))
        {
            var path = Assert.Single(Directory.GetFiles(Path.Combine(folder, "source")));
            var name = Path.GetFileName(path);
            var (panel, problem) = Read(path);
            var clean = Path.Combine(folder, "clean.csv");
            var anew = File.Exists(clean) ? BarPanel.ReadCsv(clean) : null;
            if (panel is null)
                Assert.EndsWith($"""`quantra check "{name}" --fix clean.csv`""", problem, StringComparison.Ordinal);
            else if (anew is not null)
                Assert.True(panel.Equals(anew), path);
            else
                Assert.Contains(name, Harmless);
            read += panel is null ? 0 : 1;
            writtenAnew += anew is null ? 0 : 1;
        }

        Assert.Equal((Plain, WrittenAnew), (read, writtenAnew));
    }

    private static (BarPanel? Panel, string Problem) Read(string path)
    {
        try
        {
            return (BarPanel.ReadCsv(path), "");
        }
        catch (QuantraException refusal)
        {
            return (null, refusal.Message);
        }
    }
}
