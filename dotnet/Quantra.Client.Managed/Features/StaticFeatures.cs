namespace Quantra.Client.Managed;

/// <summary>A number per symbol, standardised over the training symbols; its columns are the value and whether it is unknown.</summary>
internal sealed record StaticNumber(string Name, double Center, double Scale)
{
    /// <summary>Number of columns.</summary>
    public const int Width = 2;
}

/// <summary>A string per symbol, with a column for each known string and one for unknown.</summary>
internal sealed record StaticCategory(string Name, string[] Categories)
{
    /// <summary>Number of columns.</summary>
    public int Width => Categories.Length + 1;
}

/// <summary>The fitted static variables of a model; numbers first, then categories.</summary>
internal sealed record StaticFeatures(StaticNumber[] Numbers, StaticCategory[] Categories)
{
    private const double Clip = 8.0;
    private const int MostVariables = 200;
    private const int MostCategories = 500;

    /// <summary>Names of the variables.</summary>
    public string[] Names => [.. Numbers.Select(one => one.Name), .. Categories.Select(one => one.Name)];

    /// <summary>Number of columns of each variable.</summary>
    public int[] Widths { get; } = [.. Numbers.Select(_ => StaticNumber.Width), .. Categories.Select(one => one.Width)];

    /// <summary>[C] index of the variable that each column belongs to.</summary>
    public int[] Groups => [.. Widths.SelectMany((width, k) => Enumerable.Repeat(k, width))];

    /// <summary>Reads the variables of features.json.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID</exception>
    public static StaticFeatures Read(JsonRecord record)
    {
        var statics = new StaticFeatures(Array.ConvertAll(record.Records("numbers"), ReadNumber), Array.ConvertAll(record.Records("categories"), ReadCategory));
        if (record.Number("clip") != Clip)
            throw record.Refusal("clip", $"must be {Clip}");
        record.End();
        var names = statics.Names;
        if (names.Length > MostVariables)
            throw record.Refusal("numbers", $"and categories are more than {MostVariables} variables");
        if (Array.Find(names, name => !CovariateFields.IsName(name)) is { } invalid)
            throw record.Refusal("numbers", $"or categories name '{invalid}', which is not 1 to 64 lower-case letters, digits and underscores");
        return names.Distinct().Count() == names.Length
            ? statics
            : throw record.Refusal("numbers", "or categories name a variable twice");
    }

    /// <summary>Encodes all variables of some symbols.</summary>
    /// <param name="symbols">Number of symbols.</param>
    /// <param name="numbers">A number for each symbol by name, NaN = unknown.</param>
    /// <param name="categories">A string for each symbol by name, empty = unknown.</param>
    /// <returns>[S, C]</returns>
    /// <exception cref="QuantraException">COVARIATE_MISSING: a variable is missing or of the other kind.</exception>
    public float[] Encode(
        int symbols, IReadOnlyDictionary<string, double[]> numbers, IReadOnlyDictionary<string, string[]> categories)
    {
        var width = Widths.Sum();
        var result = new float[symbols * width];
        var start = 0;
        foreach (var (name, center, scale) in Numbers)
        {
            var values = numbers.TryGetValue(name, out var sent) ? sent : throw Missing(name, "numbers", categories.ContainsKey(name));
            for (var row = 0; row < symbols; row++)
            {
                var isKnown = double.IsFinite(values[row]);
                var scaled = ((isKnown ? values[row] : center) - center) / scale;
                result[(row * width) + start] = (float)Math.Min(Math.Max(scaled, -Clip), Clip);
                result[(row * width) + start + 1] = isKnown ? 0f : 1f;
            }
            start += StaticNumber.Width;
        }
        foreach (var category in Categories)
        {
            var texts = categories.TryGetValue(category.Name, out var sent)
                ? sent
                : throw Missing(category.Name, "texts", numbers.ContainsKey(category.Name));
            for (var row = 0; row < symbols; row++)
            {
                var place = Array.IndexOf(category.Categories, texts[row]);
                result[(row * width) + start + (place < 0 ? category.Categories.Length : place)] = 1f;
            }
            start += category.Width;
        }
        return result;
    }

    /// <summary>Warnings about unknown values of symbols; arguments as in <see cref="Encode"/>.</summary>
    public IEnumerable<string> Warnings(
        IReadOnlyList<string> symbols, IReadOnlyDictionary<string, double[]> numbers, IReadOnlyDictionary<string, string[]> categories)
    {
        foreach (var (name, _, _) in Numbers)
        {
            var absent = Where(symbols, row => double.IsNaN(numbers[name][row]));
            if (absent.Length > 0)
                yield return $"{PredictionError.Listed(absent)}: {name} is unknown, and the forecast is made without it";
        }
        foreach (var category in Categories)
        {
            var (name, texts) = (category.Name, categories[category.Name]);
            var unknown = Where(symbols, row => texts[row].Length > 0 && !category.Categories.Contains(texts[row]));
            if (unknown.Length > 0)
            {
                string[] values = [.. texts.Where(text => text.Length > 0 && !category.Categories.Contains(text)).Distinct().Order(StringComparer.Ordinal).Select(text => $"'{text}'")];
                yield return $"{PredictionError.Listed(unknown)}: {name} is {PredictionError.Listed(values)}, which no training symbol had; it counts as unknown";
            }
            var absent = Where(symbols, row => texts[row].Length == 0);
            if (absent.Length > 0)
                yield return $"{PredictionError.Listed(absent)}: {name} is unknown, and the forecast is made without it";
        }
    }

    private static StaticNumber ReadNumber(JsonRecord entry)
    {
        var number = new StaticNumber(entry.Text("name"), entry.Number("center"), entry.Number("scale"));
        entry.End();
        return number.Scale > 0 ? number : throw entry.Refusal("scale", "must be positive");
    }

    private static StaticCategory ReadCategory(JsonRecord entry)
    {
        var category = new StaticCategory(entry.Text("name"), entry.Texts("categories"));
        entry.End();
        var names = category.Categories;
        var rising = names.Length is > 0 and <= MostCategories && names[0].Length > 0
            && Enumerable.Range(1, names.Length - 1).All(k => CompareCodePoints(names[k - 1], names[k]) < 0);
        return rising ? category : throw entry.Refusal("categories", $"must be 1 to {MostCategories} distinct, sorted strings");
    }

    /// <summary>Compares by code points, as Python does; the order of UTF-16 differs beyond the basic plane.</summary>
    private static int CompareCodePoints(string left, string right) =>
        left.EnumerateRunes().Select(rune => rune.Value).Zip(right.EnumerateRunes().Select(rune => rune.Value), (a, b) => a.CompareTo(b))
            .FirstOrDefault(order => order != 0, left.Length.CompareTo(right.Length));

    private static string[] Where(IReadOnlyList<string> symbols, Func<int, bool> chosen) =>
        [.. Enumerable.Range(0, symbols.Count).Where(chosen).Select(row => symbols[row])];

    private static QuantraException Missing(string name, string kind, bool isOther) => FittedFeatures.Missing(
        name, $"static covariate {name} {(isOther ? $"must be {kind}" : $"is missing, but the model reads it, as {kind}, one per symbol")}");
}
