using System.Collections;
using System.Globalization;
using System.Reflection;

namespace Quantra.Client.Tests;

/// <summary>Equality and formatting of requests and results.</summary>
public sealed class RecordTests
{
    public static TheoryData<string> Names => [.. SampleRecords.All.Keys];

    [Theory]
    [MemberData(nameof(Names))]
    public void Records_of_the_same_content_are_equal(string name)
    {
        var (one, other) = (SampleRecords.All[name].Make(), SampleRecords.All[name].Make());
        Assert.True(one.Equals(other));
        Assert.Equal(one.GetHashCode(), other.GetHashCode());
        Assert.False(one.Equals(null));
    }

    [Theory]
    [MemberData(nameof(Names))]
    public void A_record_that_differs_in_any_one_property_is_another(string name)
    {
        var properties = SampleRecords.All[name].Make().GetType().GetProperties().Where(property => property.CanWrite);
        Assert.All(properties, property =>
        {
            var (one, other) = (SampleRecords.All[name].Make(), SampleRecords.All[name].Make());
            if (property.GetValue(other) is not { } value)
                return;
            property.SetValue(other, Altered(value, property.PropertyType));
            Assert.False(one.Equals(other), $"{property.Name} does not count");
        });
    }

    [Fact]
    public void Bars_and_windows_are_part_of_equality()
    {
        var (one, other) = ((PredictionRequest)SampleRecords.All["request"].Make(), (PredictionRequest)SampleRecords.All["window request"].Make());
        Assert.NotEqual(one with { Covariates = Covariates.None }, new PredictionRequest(one.Model, one.Bars! with { Currency = "USD" }));
        Assert.NotEqual(other, new PredictionRequest(other.Model, other.Window! with { SchemaHash = "x" }));
    }

    [Fact]
    public void Equal_covariates_may_be_in_any_order()
    {
        var one = new Covariates { Numbers = new Dictionary<string, ReadOnlyMemory<double>> { ["a"] = new[] { 1.0 }, ["b"] = new[] { 2.0 } } };
        var other = new Covariates { Numbers = new Dictionary<string, ReadOnlyMemory<double>> { ["b"] = new[] { 2.0 }, ["a"] = new[] { 1.0 } } };
        Assert.Equal(one, other);
        Assert.Equal(one.GetHashCode(), other.GetHashCode());
    }

    [Theory]
    [MemberData(nameof(Names))]
    public void A_record_prints_one_line_the_same_in_every_culture(string name)
    {
        var (make, text) = SampleRecords.All[name];
        if (text.Length > 0) // a forecast formats as a table and has its own test
            Assert.Equal(text, InCommas(() => make().ToString()));
    }

    [Fact]
    public void Empty_records_can_be_formatted()
    {
        var bars = new BarPanel { Symbols = [], Sessions = default, Open = default, High = default, Low = default, Close = default, Volume = default };
        Assert.Equal("bars of no symbol; 0 sessions", bars.ToString());
        Assert.Equal("no covariates", Covariates.None.ToString());
        Assert.StartsWith("every horizon: ", new ManyExplanationsRequest(new("small", bars), []).ToString(), StringComparison.Ordinal);
        Assert.Equal("bars of S0, S1, S2, S3, S4 and 5 more; 0 sessions", (bars with { Symbols = [.. Enumerable.Range(0, 10).Select(i => $"S{i}")] }).ToString());
    }

    private static string? InCommas(Func<string?> print)
    {
        var commas = (CultureInfo)CultureInfo.InvariantCulture.Clone();
        commas.NumberFormat.NumberDecimalSeparator = ",";
        commas.DateTimeFormat.ShortDatePattern = "d. M. yyyy";
        var before = CultureInfo.CurrentCulture;
        CultureInfo.CurrentCulture = commas;
        try
        {
            return print();
        }
        finally
        {
            CultureInfo.CurrentCulture = before;
        }
    }

    /// <summary>Returns another value of the same type. In a collection, only the last element differs.</summary>
    private static object Altered(object value, Type type) => value switch
    {
        string text => text + "x",
        int number => number + 1,
        long number => number + 1,
        double number => double.IsNaN(number) ? 0.0 : number + 0.125,
        bool flag => !flag,
        DateOnly day => day.AddDays(1),
        DateTimeOffset time => time.AddTicks(1),
        Enum => Enum.ToObject(value.GetType(), Convert.ToInt32(value, CultureInfo.InvariantCulture) + 1),
        ReadOnlyMemory<double> numbers => new ReadOnlyMemory<double>(LastAltered(numbers)),
        ReadOnlyMemory<float> numbers => new ReadOnlyMemory<float>([.. numbers.Span[..^1], 99]),
        ReadOnlyMemory<int> numbers => new ReadOnlyMemory<int>(LastAltered(numbers)),
        ReadOnlyMemory<bool> flags => new ReadOnlyMemory<bool>(LastAltered(flags)),
        ReadOnlyMemory<DateOnly> days => new ReadOnlyMemory<DateOnly>(LastAltered(days)),
        IDictionary dictionary => AlteredDictionary(dictionary, type.GetGenericArguments()),
        IEnumerable list => AlteredList(list, type.GetGenericArguments()[0]),
        _ => AlteredRecord(value),
    };

    private static T[] LastAltered<T>(ReadOnlyMemory<T> values) => [.. values.Span[..^1], (T)Altered(values.Span[^1]!, typeof(T))];

    private static Array AlteredList(IEnumerable list, Type element)
    {
        object[] items = [.. list.Cast<object>()];
        var altered = Array.CreateInstance(element, items.Length);
        for (var place = 0; place < items.Length; place++)
            altered.SetValue(place == items.Length - 1 ? Altered(items[place], element) : items[place], place);
        return altered;
    }

    private static object AlteredDictionary(IDictionary dictionary, Type[] types)
    {
        var altered = (IDictionary)Activator.CreateInstance(typeof(Dictionary<,>).MakeGenericType(types))!;
        foreach (DictionaryEntry entry in dictionary)
            altered.Add(entry.Key, Altered(entry.Value!, types[1]));
        return altered;
    }

    private static object AlteredRecord(object record)
    {
        var copy = record.GetType().GetMethod("<Clone>$")!.Invoke(record, null)!; // the method behind "with"
        var property = record.GetType().GetProperties(BindingFlags.Public | BindingFlags.Instance).First(one => one.CanWrite);
        property.SetValue(copy, Altered(property.GetValue(record)!, property.PropertyType));
        return copy;
    }
}
