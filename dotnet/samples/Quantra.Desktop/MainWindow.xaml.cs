using System.Windows;
using Microsoft.Win32;
using Quantra.Desktop.ViewModels;

namespace Quantra.Desktop;

/// <summary>The main window.</summary>
public partial class MainWindow : Window
{
    private readonly MainViewModel _model;

    /// <param name="model">The view model. The window disposes it.</param>
    public MainWindow(MainViewModel model)
    {
        InitializeComponent();
        DataContext = _model = model;
        Loaded += async (_, _) => await _model.RunAsync();
        Closed += (_, _) => _model.Dispose();
    }

    private async void OnOpen(object sender, RoutedEventArgs e)
    {
        var dialog = new OpenFileDialog { Filter = "Bars (*.csv)|*.csv|All files|*.*", Title = "Daily bars" };
        if (dialog.ShowDialog(this) == true)
            await _model.Forecast.OpenAsync(dialog.FileName);
    }
}
