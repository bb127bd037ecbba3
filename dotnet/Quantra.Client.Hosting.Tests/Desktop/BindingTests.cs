using System.Collections;
using System.Reflection;
using System.Text.RegularExpressions;
using System.Windows.Input;
using System.Xml.Linq;
using Quantra.Desktop.Charts;
using Quantra.Desktop.ViewModels;

namespace Quantra.Client.Hosting.Tests.Desktop;

/// <summary>Checks the bindings of the window's XAML, which runs only on Windows.</summary>
public sealed partial class BindingTests
{
    private static readonly XNamespace Xaml = "http://schemas.microsoft.com/winfx/2006/xaml/presentation";
    private static readonly string Folder = Path.Combine(HostingFixture.Repository(), "dotnet", "samples", "Quantra.Desktop");

    /// <summary>Types that element properties require. Others accept any value.</summary>
    private static readonly Dictionary<string, Type> Needed = new()
    {
        ["Command"] = typeof(ICommand),
        ["ItemsSource"] = typeof(IEnumerable),
        ["Visibility"] = typeof(bool),
        ["Chart"] = typeof(IChart),
        ["Value"] = typeof(double),
        ["Text"] = typeof(object),
    };

    private static XElement Window => XDocument.Load(Path.Combine(Folder, "MainWindow.xaml")).Root!;

    [Fact]
    public void Every_binding_has_a_property_of_its_type()
    {
        var bound = Bindings(Window, typeof(MainViewModel)).ToList();
        Assert.True(bound.Count > 30, $"only {bound.Count} bindings were found");
        foreach (var (attribute, path, source) in bound)
        {
            var found = TypeOf(source, path);
            Assert.True(found is not null, $"{attribute.Name.LocalName}={attribute.Value}: {source.Name} has no {path}");
            if (Needed.TryGetValue(attribute.Name.LocalName, out var needed))
                Assert.True(found.IsAssignableTo(needed) || needed == typeof(object), $"{attribute.Name.LocalName}={attribute.Value} is a {found.Name}");
        }
    }

    [Fact]
    public void Two_way_bindings_have_settable_properties()
    {
        var chosen = Bindings(Window, typeof(MainViewModel)).Where(one => one.Attribute.Name.LocalName == "SelectedItem").ToList();
        Assert.Equal(4, chosen.Count);
        Assert.All(chosen, one => Assert.NotNull(PropertyOf(one.Source, one.Path)!.SetMethod));
    }

    [Fact]
    public void A_binding_to_a_missing_property_is_detected()
    {
        var broken = new XElement(Xaml + "TextBlock", new XAttribute("Text", "{Binding Forecast.Fan.Headding}"));
        var (_, path, source) = Assert.Single(Bindings(broken, typeof(MainViewModel)));
        Assert.Null(TypeOf(source, path));
    }

    [Fact]
    public void Every_handler_is_in_the_code_behind()
    {
        var code = File.ReadAllText(Path.Combine(Folder, "MainWindow.xaml.cs"));
        var handlers = Window.DescendantsAndSelf().Attributes().Where(one => one.Name.LocalName is "Click" or "Loaded" or "Closed").ToList();
        Assert.NotEmpty(handlers);
        Assert.All(handlers, one => Assert.Contains($"void {one.Value}(", code, StringComparison.Ordinal));
    }

    /// <summary>Returns each binding below an element and the type at the root of its path.</summary>
    private static IEnumerable<(XAttribute Attribute, string Path, Type Source)> Bindings(XElement element, Type source)
    {
        var own = element.Attributes().FirstOrDefault(one => one.Name.LocalName == "DataContext" && one.Name.Namespace == XNamespace.None);
        if (own is not null)
        {
            yield return (own, PathOf(own)!, source);
            source = TypeOf(source, PathOf(own)!) ?? throw new InvalidOperationException($"{source.Name} has no {own.Value}");
        }

        foreach (var attribute in element.Attributes().Where(one => one != own))
        {
            if (PathOf(attribute) is { } path)
                yield return (attribute, path, source);
        }

        foreach (var child in element.Elements())
        {
            var within = child.Name.LocalName.EndsWith(".ItemTemplate", StringComparison.Ordinal) ? ItemOf(element, source) : source;
            foreach (var binding in Bindings(child, within))
                yield return binding;
        }
    }

    /// <summary>Returns the item type of a template.</summary>
    private static Type ItemOf(XElement element, Type source) =>
        TypeOf(source, PathOf(element.Attribute("ItemsSource")!)!)!.GetInterfaces()
            .Append(TypeOf(source, PathOf(element.Attribute("ItemsSource")!)!)!)
            .First(one => one.IsGenericType && one.GetGenericTypeDefinition() == typeof(IEnumerable<>) || one.Name.StartsWith("IReadOnlyList", StringComparison.Ordinal))
            .GetGenericArguments()[0];

    /// <summary>Returns the path of a binding, "" = the source itself; null if it is not a binding.</summary>
    private static string? PathOf(XAttribute attribute) =>
        BindingPattern().Match(attribute.Value) is { Success: true } found ? found.Groups[1].Value : null;

    private static Type? TypeOf(Type source, string path) => path.Length == 0 ? source : PropertyOf(source, path)?.PropertyType;

    private static PropertyInfo? PropertyOf(Type source, string path)
    {
        PropertyInfo? found = null;
        foreach (var name in path.Split('.'))
        {
            found = source.GetProperty(name);
            if (found is null)
                return null;
            source = found.PropertyType;
        }

        return found;
    }

    [GeneratedRegex(@"^\{Binding ?([\w.]*)[,}]")]
    private static partial Regex BindingPattern();
}
